"""Record batches: layout, header view, iteration, checksum and compression of Kafka's record format v2."""
