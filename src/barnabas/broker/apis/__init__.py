"""The APIs of the broker (RP-37): one file per API, declared as rows in ``table.py``."""
