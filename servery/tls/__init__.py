"""TLS by the standard library's `ssl`: certificates from files, chosen by name, renewed while they serve.

Knows files, names and `ssl` contexts; octets of connections are the business of `servery.drivers`.
"""
