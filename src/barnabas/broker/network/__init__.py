"""The request layer: sockets in, requests out, responses back (RP-1 … RP-33, RP-36)."""
