"""``python -m bench.gpu``: all tests and measurements that need a GPU, in one command."""
