"""HTTP/2 (RFC 9113), sans-I/O, over the library h2, which is imported only when a server is to speak it."""
