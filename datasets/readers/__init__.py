"""Files on disk as arrays, texts and clients."""
