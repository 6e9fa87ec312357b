"""Runs `reverie` in processes of its own that need not import PyTorch: it forks them from one that has.

usage: python warm.py FD. At the socket FD come commands (JSON), each with four descriptors: stdin, stdout, stderr, and
a pipe for the process's number and, at its end, its exit code. A forked process ends as any interpreter does.
"""

import gc
import json
import os
import signal
import socket
import sys


def wait_for_commands(line):
    """Returns in the process of a command, and only there."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers end unasked
    while True:
        message, descriptors, _, _ = socket.recv_fds(line, 2**16, 4)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            line.close()
            keep(*descriptors)
            begin(json.loads(message), descriptors[:3])
            return
        for one in descriptors:
            os.close(one)


def keep(stdin, stdout, stderr, reported):
    """Forks the command, and reports how it ends; returns in the command's process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = os.fork()
    if command == 0:
        os.close(reported)
        return
    for one in (stdin, stdout, stderr):
        os.close(one)
    os.write(reported, f"{command}\n".encode())
    _, status = os.waitpid(command, 0)
    os.write(reported, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def begin(command, streams):
    """Makes this process what a shell would have started."""
    if command["session"]:
        os.setsid()
    for number, one in enumerate(streams):
        os.dup2(one, number)
        os.close(one)
    if command["terminal"]:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # The tests may run with other handlers, for example under nohup.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.chdir(command["folder"])
    sys.argv = ["reverie", *command["arguments"]]
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1 if os.isatty(1) else -1)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115


if __name__ == "__main__":
    import reverie.cli.app
    import reverie.runners.process  # noqa: F401
    from reverie.cli import main

    # A command would search and end each object of these modules when it ends, for two seconds of a processor.
    gc.collect()
    gc.freeze()
    wait_for_commands(socket.socket(fileno=int(sys.argv[1])))
    main()
