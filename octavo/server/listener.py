"""Listener: the socket that the server is reached by, had before anything is loaded, and its address as clients write it."""

import errno
import os
import socket
import stat
from pathlib import Path

from octavo import environment
from octavo.config.options import ServerOptions
from octavo.engine import launcher
from octavo.errors import ConfigError

BACKLOG = 2048
ALL_ADDRESSES = ("0.0.0.0", "::", "")


class Listener:
    """A listening socket of TCP, or of a path, which is removed when the listener is closed."""

    def __init__(self, server: socket.socket, path: Path | None = None) -> None:
        self.socket = server
        self.path = path
        self._inode = path.stat().st_ino if path is not None else 0

    def address(self, scheme: str = "http") -> str:
        """scheme://host:port as a client on this machine would write it; for a path, what stands after the socket's own address."""
        if self.path is not None:
            return f"{scheme}://localhost"
        host, port = self.socket.getsockname()[:2]
        if host in ALL_ADDRESSES:
            host = environment.host_ip() or "127.0.0.1"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    @property
    def name(self) -> str:
        """For people."""
        return f"unix:{self.path}" if self.path is not None else self.address()

    def close(self) -> None:
        self.socket.close()
        if self.path is not None:
            launcher.remove_file(self.path, self._inode)

    def bequeath(self) -> None:
        """Let the engine's process remove the path if this one is killed."""
        if self.path is not None:
            launcher.bequeath(self.path, self._inode)


def listen(options: ServerOptions) -> Listener:
    """The listener that the options ask for. Raises ConfigError, with what to do."""
    if options.uds:
        try:
            mode = int(options.uds_mode, 8)
        except ValueError:
            raise ConfigError(f"--uds-mode {options.uds_mode!r} is not an octal number", "660 lets the group in, 600 nobody else") from None
        return listen_at_path(Path(options.uds), mode)
    return Listener(bind(options.host, options.port))


def bind(host: str, port: int) -> socket.socket:
    """A listening socket of TCP."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"port {port} does not exist", "pass a --port of 0 (any free one) to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host} is in use", "stop what listens there, or pass another --port (0 = any free one)"
            ) from None
        raise ConfigError(f"{host}:{port} cannot be listened on: {error.strerror}", "pass another --host or --port") from None
    return listener


def listen_at_path(path: Path, mode: int) -> Listener:
    """A listening socket with a path. One whose server has died is replaced; one that somebody answers at is not."""
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o777 & ~mode)  # the mode from the first moment on
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        why = error.strerror or str(error)
        raise ConfigError(f"--uds {str(path)!r} cannot be listened on: {why}", "pass a short path in a folder that you may write") from None
    finally:
        os.umask(umask)
    return Listener(listener, path.absolute())


def _remove_stale(path: Path) -> None:
    try:
        status = path.lstat()
    except OSError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise ConfigError(f"--uds {str(path)!r} is there, and is not a socket", "pass another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            launcher.remove_file(path, status.st_ino)
            return
        except OSError:  # it is there but slow, or not ours to try
            pass
    raise ConfigError(f"--uds {str(path)!r} is in use", "stop the server that listens there, or pass another path")
