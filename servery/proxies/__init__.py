"""What proxies in front of the server say about a client, and from whom that is believed. No I/O."""
