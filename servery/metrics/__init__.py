"""What a worker counts, as plain values that can be sent, merged, and written for Prometheus. No I/O."""
