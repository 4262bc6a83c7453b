"""TLS: the certificate that the server shows, checked before anything is loaded, and replaced while it runs when its files change."""

import asyncio
import os
import ssl
from typing import Any

from octavo.config.options import ServerOptions
from octavo.errors import ConfigError
from octavo.logging import get_logger

logger = get_logger(__name__)

REFRESH_S = 1.0  # how often the files are looked at


class Tls:
    """`context` is for the listener. refresh() makes the connections that come later use what the files hold then."""

    def __init__(self, options: ServerOptions) -> None:
        """Raises ConfigError for files that are missing or do not fit together."""
        self._options = options
        self.context = self._current = _make(options)
        # called in each handshake, also of clients that name no server
        self.context.sni_callback = self._choose
        self._seen = self._look()

    def refresh(self) -> bool:
        """Read the files again if they have changed. What cannot be used is logged, and the former certificate stays."""
        now = self._look()
        if now == self._seen:
            return False
        self._seen = now
        try:
            self._current = _make(self._options)
        except ConfigError as error:
            logger.error("the TLS files have changed and cannot be used, so the former ones stay: %s", error.fact)
            return False
        logger.info("the TLS files have changed: new connections use them")
        return True

    async def keep_fresh(self) -> None:
        """Refresh for ever. Files may lie on a slow disk, so a thread looks at them."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await asyncio.to_thread(self.refresh)

    def _choose(self, connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        if self._current is not self.context:
            connection.context = self._current

    def _look(self) -> list[tuple[int, int, int] | None]:
        """What tells whether a file is still the one that was read; links are followed."""
        found: list[tuple[int, int, int] | None] = []
        for path in (self._options.ssl_certfile, self._options.ssl_keyfile, self._options.ssl_ca_certs):
            try:
                status = os.stat(path or "")
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
            except OSError:
                found.append(None)
        return found


def tls_of(options: ServerOptions) -> Tls | None:
    """None: the server speaks plain HTTP. Raises ConfigError."""
    if options.ssl_certfile:
        return Tls(options)
    for flag, value in (("--ssl-keyfile", options.ssl_keyfile), ("--ssl-ca-certs", options.ssl_ca_certs)):
        if value:
            raise ConfigError(f"{flag} needs a certificate", "pass --ssl-certfile too")
    if options.ssl_cert_reqs:
        raise ConfigError("--ssl-cert-reqs needs a certificate", "pass --ssl-certfile too")
    if options.enable_ssl_refresh:
        raise ConfigError("--enable-ssl-refresh has no files to refresh", "pass --ssl-certfile too")
    return None


def _make(options: ServerOptions) -> ssl.SSLContext:
    assert options.ssl_certfile is not None
    for flag, path in (
        ("--ssl-certfile", options.ssl_certfile),
        ("--ssl-keyfile", options.ssl_keyfile),
        ("--ssl-ca-certs", options.ssl_ca_certs),
    ):
        if path:
            try:
                with open(path, "rb"):
                    pass
            except OSError as error:
                raise ConfigError(f"{flag} {path!r} cannot be read: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(options.ssl_certfile, options.ssl_keyfile, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        pair = f"{options.ssl_certfile!r} and {options.ssl_keyfile!r}" if options.ssl_keyfile else f"{options.ssl_certfile!r}"
        raise ConfigError(
            f"{pair} are no certificate and its key: {_reason(error)}", "both must be PEM, the key without password"
        ) from None
    _ask_clients(context, options)
    if options.ssl_ciphers:
        try:
            context.set_ciphers(options.ssl_ciphers)
        except ssl.SSLError:
            raise ConfigError(f"--ssl-ciphers {options.ssl_ciphers!r} selects no cipher", "`openssl ciphers` lists them") from None
    return context


def _ask_clients(context: ssl.SSLContext, options: ServerOptions) -> None:
    try:
        reading = ssl.VerifyMode(options.ssl_cert_reqs)
    except ValueError:
        raise ConfigError(f"--ssl-cert-reqs {options.ssl_cert_reqs} is not 0, 1 or 2") from None
    if reading is not ssl.CERT_NONE and not options.ssl_ca_certs:
        raise ConfigError(f"--ssl-cert-reqs {options.ssl_cert_reqs} needs authorities to check with", "pass --ssl-ca-certs")
    if options.ssl_ca_certs:
        try:
            context.load_verify_locations(options.ssl_ca_certs)
        except ssl.SSLError as error:
            raise ConfigError(
                f"--ssl-ca-certs {options.ssl_ca_certs!r} holds no certificates: {_reason(error)}", "it must be PEM"
            ) from None
    context.verify_mode = reading


def _no_password() -> str:
    """OpenSSL would ask at the terminal."""
    raise ValueError("the key has a password")


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
