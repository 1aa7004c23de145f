"""Measurements and the demo: scripts that run beside the product, never imported by it."""
