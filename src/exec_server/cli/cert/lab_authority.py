"""A certificate authority in a directory, and the certificates that it issues."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import re
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from exec_server.errors import ConfigurationError

_CA, _CA_KEY = "ca.pem", "ca-key.pem"
# A clock that is slow by this much still accepts a new certificate.
_SKEW = datetime.timedelta(hours=1)
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


class IssuedCertificate(msgspec.Struct, frozen=True, rename="camel"):
    """The files of a certificate and the facts about it, as `-o json` prints them."""

    certificate: str
    key: str
    ca: str
    names: list[str]
    # The end of its validity, RFC 3339.
    not_after: str
    # SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` shows it.
    fingerprint: str


class LabAuthority:
    """The authority in *folder*."""

    def __init__(self, folder: Path, *, may_replace: bool = False) -> None:
        self._folder = folder
        self._may_replace = may_replace

    def create(self, name: str, *, days: int) -> IssuedCertificate:
        """Make the authority itself. Raises ConfigurationError."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise ConfigurationError(f"cannot make {self._folder}: {exc.strerror}") from exc
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name)
        builder = (
            _builder(subject, key, days=days)
            .issuer_name(subject)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        made = builder.sign(key, hashes.SHA256())
        return self._write(_CA, _CA_KEY, made, key, [name])

    def issue_server(self, hosts: list[str], *, days: int) -> IssuedCertificate:
        """Make a certificate for a server with these host names and addresses."""
        for host in hosts:
            if not _is_address(host) and not _HOST.fullmatch(host):
                raise ConfigurationError(f"`{host}` is neither a host name nor an IP address")
        alternatives = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
        file = "server-" + hosts[0].replace("*", "any").replace(":", "-")
        purpose = ExtendedKeyUsageOID.SERVER_AUTH
        return self._issue(file, hosts, purpose, days=days, alternatives=alternatives)

    def issue_client(self, name: str, *, days: int) -> IssuedCertificate:
        """Make a certificate for a client of this name."""
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"`{name}` cannot name a client: use letters, digits and . _ @ -, at most 63"
            )
        return self._issue(f"client-{name}", [name], ExtendedKeyUsageOID.CLIENT_AUTH, days=days)

    def _issue(
        self,
        file: str,
        names: list[str],
        purpose: x509.ObjectIdentifier,
        *,
        days: int,
        alternatives: x509.SubjectAlternativeName | None = None,
    ) -> IssuedCertificate:
        authority, authority_key = self._load()
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer)
        builder = (
            _builder(_subject(names[0]), key, days=days, latest=authority.not_valid_after_utc)
            .issuer_name(authority.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(by, critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        made = builder.sign(authority_key, hashes.SHA256())
        return self._write(f"{file}.pem", f"{file}-key.pem", made, key, names)

    # Files.

    def _load(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        try:
            certificate = x509.load_pem_x509_certificate((self._folder / _CA).read_bytes())
            pem = (self._folder / _CA_KEY).read_bytes()
            key = serialization.load_pem_private_key(pem, password=None)
        except FileNotFoundError:
            raise ConfigurationError(
                f"{self._folder} has no authority: make one with `exec-server cert ca "
                f"{self._folder}`"
            ) from None
        except (OSError, ValueError, TypeError) as exc:
            raise ConfigurationError(f"cannot use the authority in {self._folder}: {exc}") from exc
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigurationError(f"the authority in {self._folder} is not of this program")
        if certificate.not_valid_after_utc <= _now():
            raise ConfigurationError(f"the authority in {self._folder} has expired")
        return certificate, key

    def _write(
        self,
        certificate_file: str,
        key_file: str,
        certificate: x509.Certificate,
        key: ec.EllipticCurvePrivateKey,
        names: list[str],
    ) -> IssuedCertificate:
        pem = serialization.Encoding.PEM
        private = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        paths = self._folder / certificate_file, self._folder / key_file
        for path in paths:
            if not self._may_replace and os.path.lexists(path):
                raise ConfigurationError(f"{path} exists already; --force replaces it")
        # The key comes first: a server that sees the new certificate finds its key.
        _write_private(paths[1], private)
        _write_private(paths[0], certificate.public_bytes(pem))
        return IssuedCertificate(
            certificate=str(paths[0]),
            key=str(paths[1]),
            ca=str(self._folder / _CA),
            names=names,
            not_after=certificate.not_valid_after_utc.isoformat().replace("+00:00", "Z"),
            fingerprint=certificate.fingerprint(hashes.SHA256()).hex(":").upper(),
        )


def _write_private(path: Path, data: bytes) -> None:
    """Replace a file by one of mode 0600, so that a reader sees the old one or the new one."""
    unfinished = path.with_name(f".{path.name}.new")
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
        os.replace(unfinished, path)
    except OSError as exc:
        raise ConfigurationError(f"cannot write {path}: {exc.strerror}") from exc


def _builder(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    days: int,
    latest: datetime.datetime | None = None,
) -> x509.CertificateBuilder:
    now = _now()
    try:
        end = now + datetime.timedelta(days=days)
    except OverflowError:
        raise ConfigurationError(f"--days {days} is too long") from None
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(end if latest is None else min(end, latest))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(name: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError:
        raise ConfigurationError(f"`{name}` is too long for a name, or empty") from None


def _alternative(host: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(host)) if _is_address(host) else x509.DNSName(host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)
