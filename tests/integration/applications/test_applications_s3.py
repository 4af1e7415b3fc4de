"""Requests that botocore signs, through univocal with the profile `s3`, to an origin that verifies them.

Debian has no S3 server, so the origin is ours: it signs what it receives once more and compares. It reads the
target as it came, so that no other spelling passes than the one that was signed.
"""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

import pytest

botocore_session = pytest.importorskip("botocore.session", reason="needs botocore (univocal[clients])")

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth  # noqa: E402
from botocore.awsrequest import AWSRequest  # noqa: E402
from botocore.config import Config  # noqa: E402
from botocore.credentials import Credentials  # noqa: E402
from botocore.exceptions import ClientError  # noqa: E402

CREDENTIALS = Credentials("AKIDEXAMPLE", "a secret that both know")
KEYS = [
    "plain.txt", "a//b", "/begins", "a/./b", "a/../b", "..", "a/..", ".", "ends/", "a b", "a+b", "a(b)'c!*",
    "100%", "%41", "a%2Fb", "naïve/Straße.txt", "a;b=c,d@e:f$g&h", "[x]", "q?x=1#y", "~tilde-_.", "a\\b",
    "tab\there", "line\r\nfeed", "\x01\x1f\x7f",
]  # fmt: skip


class Bucket(BaseHTTPRequestHandler):
    """Keeps objects by the octets of their keys; refuses what is not signed as it was received."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    objects: dict[bytes, bytes]
    seen: list[str]

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.verified(content):
            self.objects[self.key()] = content
            self.answer(200, b"")

    def do_GET(self) -> None:
        if not self.verified(b""):
            return
        content = self.objects.get(self.key())
        if content is None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif self.headers.get("if-none-match") == '"e"':
            self.answer(304, b"")
        else:
            self.answer(200, content)

    def key(self) -> bytes:
        return unquote_to_bytes(self.path.partition("?")[0])

    def verified(self, content: bytes) -> bool:
        self.seen.append(self.path)
        if self.signature_holds():
            return True
        self.answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        return False

    def signature_holds(self) -> bool:
        url = f"http://{self.headers['host']}{self.path}"
        query = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
        if "X-Amz-Signature" in query:
            return self.presigned(url, query)
        told = self.headers.get("authorization", "")
        named = told.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        auth = S3SigV4Auth(CREDENTIALS, "s3", "us-east-1")
        headers = {name: self.headers[name] for name in named if name in self.headers}
        request = AWSRequest(method=self.command, url=url, headers=headers)
        request.context["timestamp"] = self.headers["x-amz-date"]
        request.context["payload_signing_enabled"] = True
        canonical = auth.canonical_request(request)
        signature = auth.signature(auth.string_to_sign(request, canonical), request)
        return told.endswith(f"Signature={signature}")

    def presigned(self, url: str, query: dict[str, str]) -> bool:
        unsigned = url.replace(f"&X-Amz-Signature={query['X-Amz-Signature']}", "")
        auth = S3SigV4QueryAuth(CREDENTIALS, "s3", "us-east-1")
        headers = {name: self.headers[name] for name in query["X-Amz-SignedHeaders"].split(";")}
        request = AWSRequest(method=self.command, url=unsigned, headers=headers)
        request.context["timestamp"] = query["X-Amz-Date"]
        canonical = auth.canonical_request(request)
        return auth.signature(auth.string_to_sign(request, canonical), request) == query["X-Amz-Signature"]

    def answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        for name, value in {"ETag": '"e"', "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """It is not read."""


@pytest.fixture(scope="module")
def origin() -> Iterator[Any]:
    Bucket.objects, Bucket.seen = {}, []
    with ThreadingHTTPServer(("127.0.0.1", 0), Bucket) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def front(origin, serve) -> int:
    upstream = f"http://127.0.0.1:{origin.server_port}"
    return serve(f'[[sites]]\nhosts = ["*"]\nprofile = "s3"\nupstream = "{upstream}"\n')


@pytest.fixture(scope="module")
def client(front) -> Any:
    """botocore's client of S3, which sends what it signs."""
    return botocore_session.Session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=f"http://127.0.0.1:{front}",
        aws_access_key_id=CREDENTIALS.access_key,
        aws_secret_access_key=CREDENTIALS.secret_key,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path", "payload_signing_enabled": True},
            retries={"max_attempts": 0},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


@pytest.mark.parametrize("key", KEYS)
def test_an_object_comes_back_by_the_bytes_of_its_key(client, origin, key) -> None:
    client.put_object(Bucket="bucket", Key=key, Body=key.encode())
    assert origin.RequestHandlerClass.objects[b"/bucket/" + key.encode()] == key.encode()
    assert client.get_object(Bucket="bucket", Key=key)["Body"].read() == key.encode()


def test_an_object_that_is_not_there_is_told(client) -> None:
    with pytest.raises(ClientError, match="NoSuchKey"):
        client.get_object(Bucket="bucket", Key="never written")


def test_signed_conditions_are_left_alone(client) -> None:
    """botocore signs If-None-Match, too: another one in its place would be no request of the client's."""
    client.put_object(Bucket="bucket", Key="conditional", Body=b"x")
    with pytest.raises(ClientError, match="304"):
        client.get_object(Bucket="bucket", Key="conditional", IfNoneMatch='"e"')


@pytest.mark.parametrize("key", KEYS)
def test_a_presigned_url_holds(client, origin, place, front, key) -> None:
    client.put_object(Bucket="bucket", Key=key, Body=key.encode())
    url = client.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": key})
    target = url.partition(f"127.0.0.1:{front}")[2]
    answer = place(front, f"127.0.0.1:{front}").ask(target)
    assert (answer.status, answer.text) == (200, key)
    assert origin.RequestHandlerClass.seen[-1] == target
    forged = place(front, f"127.0.0.1:{front}").ask(target.replace("X-Amz-Expires=", "X-Amz-Expires=9"))
    assert forged.status == 403


def test_another_spelling_of_a_key_matches_its_signature(client, place, front) -> None:
    client.put_object(Bucket="bucket", Key="a(b)", Body=b"x")
    url = client.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "a(b)"})
    target = url.partition(f"127.0.0.1:{front}")[2]
    assert "/a%28b%29?" in target
    assert place(front, f"127.0.0.1:{front}").ask(target.replace("%28b%29", "(b)")).status == 200
