"""What producer, consumer and admin client share: connections, requests in flight, version negotiation and metadata."""
