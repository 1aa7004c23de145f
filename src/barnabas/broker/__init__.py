"""The broker: Acceptor, Processor, RequestChannel, RequestHandler, Apis, then the log."""
