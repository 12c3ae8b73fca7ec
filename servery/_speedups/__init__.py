"""The compiled core: twins of parts of the pure server, chosen by ``--parser native`` and never silently.

Only `servery.selection` imports from here. Each twin does what its reference does, octet for octet; what is
rare or refused is left to the reference itself.
"""
