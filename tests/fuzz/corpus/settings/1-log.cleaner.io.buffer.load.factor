log.cleaner.io.buffer.load.factor=0.9
