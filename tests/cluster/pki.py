"""Keys and certificates of one control plane, made by the `openssl` program (3.0 or newer).

One authority signs the API server, every client, and webhooks. All are good for 30 days and lie in one private folder.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "30")
_CONFIG = "[req]\ndistinguished_name = dn\nprompt = no\n[dn]\n"
"""Stands in for the system's own configuration, which may add what we do not want."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A certificate and its key."""

    cert_file: Path
    key_file: Path


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self._folder = folder
        self._config = folder / "openssl.cnf"
        self._config.write_text(_CONFIG)
        self._self = self._make("ca", "/CN=headrace-test-ca", _extension("basicConstraints=critical,CA:TRUE"))

    @property
    def ca_file(self) -> Path:
        """The authority's own certificate."""
        return self._self.cert_file

    def server(self, file_name: str, names: Sequence[str]) -> Identity:
        """For a server on 127.0.0.1 that is also called `names`."""
        alternatives = ",".join(["IP:127.0.0.1", "IP:10.0.0.1", *(f"DNS:{name}" for name in names)])
        return self._issue(file_name, "/CN=server", "serverAuth", f"subjectAltName={alternatives}")

    def client(self, file_name: str, user: str, groups: Sequence[str] = ()) -> Identity:
        """For a client that the API server takes for `user`, a member of `groups`."""
        subject = "".join(f"/O={_escaped(group)}" for group in groups) + f"/CN={_escaped(user)}"
        return self._issue(file_name, subject, "clientAuth")

    def signing_key(self, file_name: str) -> Path:
        """A key that signs tokens (in the older form, whose public half the API server reads from the same file)."""
        path = self._folder / f"{file_name}.key"
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))
        return path

    def _issue(self, file_name: str, subject: str, usage: str, *extensions: str) -> Identity:
        signed = ("-CA", str(self._self.cert_file), "-CAkey", str(self._self.key_file))
        wanted = ("basicConstraints=critical,CA:FALSE", f"extendedKeyUsage={usage}", *extensions)
        return self._make(file_name, subject, (*signed, *_extension(*wanted)))

    def _make(self, file_name: str, subject: str, args: Sequence[str]) -> Identity:
        made = Identity(cert_file=self._folder / f"{file_name}.crt", key_file=self._folder / f"{file_name}.key")
        files = ("-keyout", str(made.key_file), "-out", str(made.cert_file))
        self._openssl("req", "-x509", "-config", str(self._config), *_EC, "-subj", subject, *files, *args)
        return made

    def _openssl(self, *args: str) -> None:
        done = subprocess.run(["openssl", *args], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"openssl {args[0]} failed: {done.stderr}")


def _extension(*values: str) -> tuple[str, ...]:
    return tuple(word for value in values for word in ("-addext", value))


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("/", "\\/").replace("+", "\\+")
