"""The way in for whoever runs the server: probes, metrics, state, stop; and the command that talks to it."""
