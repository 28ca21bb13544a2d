"""Connections that are encrypted: certificates that fit, and what happens with those that do not."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cli.running import run
from tests.live.client.processes import Process
from tests.live.conftest import Happened
from tests.live.scripted import ScriptedClient
from tui_debugger.errors import TdbgError
from tui_debugger.live.client.link import settings
from tui_debugger.live.server import Server
from tui_debugger.live.server.serving import Certificate, serve
from tui_debugger.live.wire import Event
from tui_debugger.session.live import waiting_text

EVERYBODY = "0.0.0.0"  # noqa: S104 - others may come in: that is when one encrypts
TOKEN = "a-secret-of-these-tests"  # noqa: S105 - of these tests


def make_certificate(directory: Path, *, name: str = "", address: str = "") -> tuple[Path, Path]:
    """Writes a certificate that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tdbg test")])
    names: list[x509.GeneralName] = [x509.DNSName(name)] if name else []
    names += [x509.IPAddress(ipaddress.ip_address(address))] if address else []
    now = dt.datetime.now(dt.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    directory.mkdir(parents=True, exist_ok=True)
    paths = directory / "cert.pem", directory / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


@pytest.fixture
def encrypted(serving: Callable[..., Server], tmp_path: Path) -> tuple[Server, Path]:
    """A server that others can reach, encrypted; and the file that vouches for it."""
    chain, key = make_certificate(tmp_path / "tls", address="127.0.0.1", name="debug-host")
    certificate = Certificate(chain.read_bytes(), key.read_bytes())
    return serving(EVERYBODY, token=TOKEN, certificate=certificate), chain


def trained(server: Server, **environment: str) -> list[str]:
    """Runs a training to its end without a debugger; returns what our client said on stderr, beside gRPC's own log."""
    port = server.address.rpartition(":")[2]
    where = {"TDBG_HOST": "127.0.0.1", "TDBG_PORT": port, "TDBG_TOKEN": TOKEN, **environment}
    with Process("tests.live.client.training", "--steps", "3", environment=where) as process:
        process.until("trained")
        status, errors = process.finish()
    assert status == 0
    return [line for line in errors if line.startswith("tdbg: ")]


@pytest.mark.parametrize("name", ["", "debug-host"], ids=["by address", "by another name"])
def test_a_training_comes_through_tls(encrypted: tuple[Server, Path], name: str) -> None:
    server, chain = encrypted
    happened = Happened(server)
    port = server.address.rpartition(":")[2]
    where = {"TDBG_HOST": "127.0.0.1", "TDBG_PORT": port, "TDBG_TOKEN": TOKEN, "TDBG_TLS_CA": str(chain)}
    where |= {"TDBG_TLS_NAME": name} if name else {}
    with Process("tests.live.client.training", "--steps", "3", environment=where) as process:
        happened.training(Event.STOPPED).terminate()
        process.until("terminated")
    assert server.encrypted


def test_a_certificate_of_somebody_else_is_not_trusted(encrypted: tuple[Server, Path], tmp_path: Path) -> None:
    other, _ = make_certificate(tmp_path / "other", address="127.0.0.1")
    (line,) = trained(encrypted[0], TDBG_TLS_CA=str(other))
    assert "whose certificate TDBG_TLS_CA vouches for" in line
    assert not encrypted[0].all()


def test_a_client_without_tls_gets_nothing_in_and_trains_on(encrypted: tuple[Server, Path]) -> None:
    (line,) = trained(encrypted[0])
    assert "no debugger at" in line
    assert not encrypted[0].all()


def test_a_wrong_token_through_tls_is_a_wrong_token(encrypted: tuple[Server, Path]) -> None:
    (line,) = trained(encrypted[0], TDBG_TLS_CA=str(encrypted[1]), TDBG_TOKEN=TOKEN + "x")
    assert "is TDBG_TOKEN right?" in line
    assert any("a wrong token" in refusal for refusal in encrypted[0].refusals)


@pytest.mark.parametrize("content", [None, b"", b"no certificate"], ids=["missing", "empty", "something else"])
def test_a_client_whose_file_is_wrong_stays_away(
    serving: Callable[..., Server], tmp_path: Path, content: bytes | None
) -> None:
    """Also from a debugger that is not encrypted: who asked for TLS sends nothing openly."""
    server = serving()
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    (line,) = trained(server, TDBG_TLS_CA=str(file))
    assert "TDBG_TLS_CA" in line
    assert "training goes on without a debugger" in line
    assert not server.all()


def test_a_client_that_wants_tls_sends_nothing_to_a_debugger_without(
    serving: Callable[..., Server], tmp_path: Path
) -> None:
    chain, _ = make_certificate(tmp_path, address="127.0.0.1")
    server = serving()
    (line,) = trained(server, TDBG_TLS_CA=str(chain))
    assert "whose certificate TDBG_TLS_CA vouches for" in line
    assert not server.all()


def test_a_given_address_with_a_wrong_file_is_an_error_of_the_program() -> None:
    with pytest.raises(TdbgError, match="TDBG_TLS_CA"):
        settings("127.0.0.1:1", environment={"TDBG_TLS_CA": "/no/such/file"})


def test_a_unix_socket_is_not_encrypted(tmp_path: Path) -> None:
    chain, key = make_certificate(tmp_path)
    with pytest.raises(TdbgError, match="Unix socket"):
        serve(f"unix:{tmp_path}/s", certificate=Certificate(chain.read_bytes(), key.read_bytes()))


def test_key_and_certificate_that_do_not_belong_together(tmp_path: Path) -> None:
    chain, _ = make_certificate(tmp_path / "a")
    _, key = make_certificate(tmp_path / "b")
    with pytest.raises(TdbgError) as caught:
        serve("127.0.0.1", 0, certificate=Certificate(chain.read_bytes(), key.read_bytes()))
    assert "certificate" in caught.value.what
    assert "belong together" in caught.value.hint


def test_the_key_is_in_no_text(tmp_path: Path) -> None:
    chain, key = make_certificate(tmp_path)
    assert "PRIVATE" not in repr(Certificate(chain.read_bytes(), key.read_bytes()))


# -- the command -----------------------------------------------------------------------------------


def test_listening_says_that_it_is_encrypted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chain, key = make_certificate(tmp_path, address="127.0.0.1")
    monkeypatch.setenv("TDBG_TOKEN", TOKEN)
    options = ["--no-screen", "--host", EVERYBODY, "--port", "0", "--timeout", "0.1"]
    said = run(capsys, "listen", *options, "--tls-cert", chain, "--tls-key", key)
    assert "what trainings send is encrypted" in said.err
    assert "TDBG_TLS_CA=..." in said.err
    assert "MS_DEBUGGER_HOST" not in said.err, "MindSpore's client does not speak TLS"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--tls-cert", "{chain}"), "--tls-cert needs --tls-key"),
        (("--tls-key", "{key}"), "--tls-key needs --tls-cert"),
        (("--tls-cert", "{key}", "--tls-key", "{key}"), "holds no certificate"),
        (("--tls-cert", "{chain}", "--tls-key", "{chain}"), "holds no private key"),
        (("--tls-cert", "/no/such", "--tls-key", "{key}"), "cannot be read"),
    ],
)
def test_mistakes_with_files_are_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: tuple[str, ...], what: str
) -> None:
    chain, key = make_certificate(tmp_path)
    given = [text.format(chain=chain, key=key) for text in options]
    said = run(capsys, "listen", "--no-screen", "--port", "0", *given)
    assert said.code == 2
    assert what in said.err


def test_the_text_for_people_names_what_a_training_needs() -> None:
    assert "TDBG_TLS_CA" in waiting_text("127.0.0.1:50051", encrypted=True)
    assert "TDBG_TLS_CA" not in waiting_text("127.0.0.1:50051")


def test_a_scripted_client_without_tls_is_turned_away(encrypted: tuple[Server, Path]) -> None:
    import grpc

    caller = ScriptedClient(encrypted[0].address.replace(EVERYBODY, "127.0.0.1"), token=TOKEN)
    with pytest.raises(grpc.RpcError) as caught:
        caller.hello()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
