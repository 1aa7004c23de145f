"""The messages of the Kafka protocol, one file per API; names are those of Kafka's message JSON, in snake case."""
