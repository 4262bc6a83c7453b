"""TLS: what is wrong is told before anything is loaded, and a certificate that is replaced on disk is shown to the next client."""

import asyncio
import contextlib
import os
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from octavo.config.options import ServerOptions
from octavo.errors import ConfigError
from octavo.server.listener import Listener, bind
from octavo.server.ready_block import curl_options
from octavo.server.tls import Tls, tls_of
from octavo.text.tokenizer import Tokenizer
from tests.server.serving import on_a_socket


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


class Authority:
    """Makes certificates."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.certificate, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        openssl("req", "-x509", *kind, "-keyout", str(self._key), "-out", str(self.certificate), "-subj", f"/CN={name}", "-days", "2")

    def make(self, name: str) -> tuple[Path, Path]:
        """A certificate for this machine, and its key."""
        certificate, key, wish = (self.folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        openssl("req", *kind, "-keyout", str(key), "-out", str(wish), "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1")
        signing = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial", "-copy_extensions", "copy")
        openssl("x509", "-req", "-in", str(wish), *signing, "-out", str(certificate), "-days", "2")
        return certificate, key


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def options(authority: Authority) -> ServerOptions:
    certificate, key = authority.make("first")
    return ServerOptions(ssl_certfile=str(certificate), ssl_keyfile=str(key))


def test_what_is_wrong_is_told_with_the_option_s_name(options: ServerOptions, authority: Authority, tmp_path: Path) -> None:
    other = authority.make("other")[1]
    locked = tmp_path / "locked.key"
    openssl("ec", "-in", str(options.ssl_keyfile), "-aes256", "-passout", "pass:secret", "-out", str(locked))
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    for changes, message in (
        ({"ssl_certfile": "/nowhere.pem"}, "--ssl-certfile '/nowhere.pem' cannot be read: No such file"),
        ({"ssl_keyfile": "/nowhere.key"}, "--ssl-keyfile '/nowhere.key' cannot be read"),
        ({"ssl_ca_certs": "/nowhere.ca"}, "--ssl-ca-certs '/nowhere.ca' cannot be read"),
        ({"ssl_keyfile": str(other)}, "no certificate and its key: KEY_VALUES_MISMATCH"),
        ({"ssl_keyfile": str(locked)}, "the key has a password"),
        ({"ssl_certfile": str(text)}, "no certificate and its key"),
        ({"ssl_ca_certs": str(text)}, "holds no certificates"),
        ({"ssl_cert_reqs": 2}, "needs authorities"),
        ({"ssl_cert_reqs": 7, "ssl_ca_certs": str(authority.certificate)}, "is not 0, 1 or 2"),
        ({"ssl_ciphers": "nonsense"}, "selects no cipher"),
        ({"ssl_certfile": None}, "--ssl-keyfile needs a certificate"),
        ({"ssl_certfile": None, "ssl_keyfile": None, "enable_ssl_refresh": True}, "--enable-ssl-refresh"),
    ):
        with pytest.raises(ConfigError) as caught:
            tls_of(replace(options, **changes))  # type: ignore[arg-type]
        assert message in caught.value.fact, caught.value.fact
    assert tls_of(ServerOptions()) is None


async def peer(url: str, context: ssl.SSLContext, name: str | None = None) -> str:
    """The common name of the certificate that a new connection is shown, after an answer over it."""
    host, port = url.removeprefix("https://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=name or host)
    shown = writer.get_extra_info("peercert")
    try:
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        status = (await reader.readline()).split()[1]
        await reader.read()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    assert status == b"200"
    return str(dict(pair[0] for pair in shown["subject"])["commonName"])


async def test_files_that_are_replaced_are_used_for_new_connections(tokenizer: Tokenizer, authority: Authority, tmp_path: Path) -> None:
    first, second = authority.make("old"), authority.make("new")
    paths = [tmp_path / "tls.crt", tmp_path / "tls.key"]

    def put(files: tuple[Path, Path]) -> None:
        """As cert-manager and Kubernetes do it: a link that is moved."""
        for path, file in zip(paths, files):
            (tmp_path / "next").symlink_to(file)
            os.replace(tmp_path / "next", path)

    put(first)
    options = ServerOptions(ssl_certfile=str(paths[0]), ssl_keyfile=str(paths[1]), enable_ssl_refresh=True)
    certificate = Tls(options)
    client = ssl.create_default_context(cafile=str(authority.certificate))
    async with on_a_socket(tokenizer, options=options, certificate=certificate) as served:
        assert await peer(served.url, client) == "old"
        assert not certificate.refresh()
        put((second[0], first[1]))  # half replaced: the pair does not fit
        assert not certificate.refresh()
        assert await peer(served.url, client) == "old"
        put(second)
        assert certificate.refresh()
        assert await peer(served.url, client) == "new"


async def test_clients_certificates(tokenizer: Tokenizer, authority: Authority, options: ServerOptions, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    authorities = tmp_path / "authorities.pem"
    authorities.write_text(authority.certificate.read_text())
    demanding = replace(options, ssl_ca_certs=str(authorities), ssl_cert_reqs=2)
    certificate = Tls(demanding)

    def client(*files: Path) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(authority.certificate))
        if files:
            context.load_cert_chain(*files)
        return context

    known, unknown = client(*authority.make("client")), client(*other.make("stranger"))
    async with on_a_socket(tokenizer, options=demanding, certificate=certificate) as served:
        assert await peer(served.url, known) == "first"
        for stranger in (client(), unknown):
            with pytest.raises((ssl.SSLError, OSError, IndexError)):  # TLS 1.3 tells it after the handshake
                await peer(served.url, stranger)
        authorities.write_text(other.certificate.read_text())
        assert certificate.refresh()
        assert await peer(served.url, unknown) == "first"
        with pytest.raises((ssl.SSLError, OSError, IndexError)):
            await peer(served.url, known)


async def test_old_protocols_are_refused(tokenizer: Tokenizer, options: ServerOptions) -> None:
    assert Tls(options).context.minimum_version is ssl.TLSVersion.TLSv1_2
    chosen = Tls(replace(options, ssl_ciphers="ECDHE-ECDSA-AES256-GCM-SHA384"))
    names = {cipher["name"] for cipher in chosen.context.get_ciphers() if cipher["protocol"] != "TLSv1.3"}
    assert names == {"ECDHE-ECDSA-AES256-GCM-SHA384"}


def test_the_ready_block_tells_curl_what_it_needs(options: ServerOptions, tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as server:
        listener = Listener(server)
        assert curl_options(ServerOptions(), listener) == ""
        assert curl_options(options, listener) == "-k "
        assert "--cert" in curl_options(replace(options, ssl_cert_reqs=2), listener)
        assert listener.address("https").startswith("https://127.0.0.1:")
