"""The listening socket: had or refused before anything is loaded, of a path or of TCP, and gone when the server is."""

import os
import socket
import stat
from pathlib import Path

import pytest

from octavo.config.options import ServerOptions
from octavo.errors import ConfigError
from octavo.server.listener import Listener, listen
from octavo.server.ready_block import curl_options


def test_a_path_has_its_mode_and_goes_with_the_listener(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    for mode in ("660", "600", "666"):
        listener = listen(ServerOptions(uds=str(path), uds_mode=mode))
        assert stat.S_IMODE(path.stat().st_mode) == int(mode, 8)
        assert listener.address() == "http://localhost"
        assert listener.name == f"unix:{path}"
        assert curl_options(ServerOptions(uds=str(path)), listener) == f"--unix-socket {path} "
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        listener.close()
        assert not path.exists()


def test_a_dead_server_s_path_is_replaced_and_a_living_one_s_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    listener = listen(ServerOptions(uds=str(path)))
    with pytest.raises(ConfigError, match="in use"):
        listen(ServerOptions(uds=str(path)))
    # whoever puts a socket of its own there keeps it
    path.rename(tmp_path / "old")
    other = listen(ServerOptions(uds=str(path)))
    listener.close()
    assert path.exists()
    other.close()
    assert not path.exists()


@pytest.mark.parametrize("kind", ["file", "folder", "long", "nowhere", "mode", "port", "host"])
def test_what_cannot_be_listened_on_is_told(tmp_path: Path, kind: str) -> None:
    path, options = tmp_path / "x", ServerOptions(uds=str(tmp_path / "x"))
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    elif kind == "long":
        options.uds = str(tmp_path / ("x" * 120))
    elif kind == "nowhere":
        options.uds = str(tmp_path / "no" / "where")
    elif kind == "mode":
        options.uds_mode = "rw"
    elif kind == "port":
        options = ServerOptions(port=70_000)
    else:
        options = ServerOptions(host="192.0.2.1", port=0)
    with pytest.raises(ConfigError) as caught:
        listen(options)
    assert caught.value.hint
    assert kind != "file" or path.read_text() == "precious"


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="in use"):
        listen(ServerOptions(port=taken.getsockname()[1]))


@pytest.mark.skipif(not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"), reason="no IPv6 here")
def test_addresses_of_ip_version_6_are_written_in_brackets() -> None:
    listener: Listener = listen(ServerOptions(host="::1", port=0))
    assert listener.address().startswith("http://[::1]:")
    listener.close()
