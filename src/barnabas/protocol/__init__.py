"""Bytes to messages and back: no socket, no thread, no clock, no log.

`schema` declares, `messages` holds one file per API, `api` is the table, `codec` encodes and decodes, `header` frames.
"""
