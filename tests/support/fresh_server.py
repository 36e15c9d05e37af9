"""A process that has imported torch and torchvision, and nothing of accel: forks of it are fresh interpreters.

Run by fresh.py, with the number of a listening socket. A request is JSON; standard input, output and error come along.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import warnings
from typing import Any

if os.fork():  # what goes on is nobody's child: tests count the processes below their own
    os._exit(0)

import torchvision.datasets
import torchvision.transforms  # noqa: F401


def forked() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that NumPy's libraries have
        return os.fork()


def serve(server: socket.socket) -> dict[str, Any]:
    """Returns in each new process, with its request; ends when standard input is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()  # what all share: looking through it would take a second at the end of each
    while True:
        ready, _, _ = select.select([server, 0], [], [])
        if 0 in ready:
            os._exit(0)
        connection, _ = server.accept()
        if forked() == 0:
            break
        connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    if (child := forked()) != 0:
        connection.send(f"{child}\n".encode())
        for file in files:
            os.close(file)
        connection.send(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n".encode())
        os._exit(0)
    connection.close()
    server.close()
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests were started with it ignored
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    request: dict[str, Any] = json.loads(message)
    if request["whole"]:
        gc.unfreeze()
    return request


def begin() -> Any:
    """The code to run, in a ``__main__`` as ``python -c`` has it."""
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = ["-c", *request["arguments"]]
    namespace = sys.modules["__main__"].__dict__
    for name in [
        name
        for name in namespace
        if name not in ("__name__", "__builtins__", "__doc__", "__spec__", "__loader__", "__package__")
    ]:
        del namespace[name]
    return compile(request["code"], "<string>", "exec")


exec(begin())
