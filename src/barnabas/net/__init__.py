"""Network layer shared by the broker and the clients: selector, channels, frames, memory pools. Knows no API."""
