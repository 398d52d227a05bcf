"""A stand-in for the Hub on the loopback interface: repositories, commits, branches, downloads.

It knows what `huggingface_hub` asks when a model is uploaded or loaded, one user and one token.
Nothing is written to disk. Clients need HF_ENDPOINT before they import anything: see `environment`.
"""

import base64
import hashlib
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

USER, TOKEN, READER = "tester", "hf_test", "hf_reader"


@dataclass
class Repository:
    """Commits by their hash, each a table from path to content; branches by name."""

    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def commit(self, branch: str, files: dict[str, bytes], message: str) -> str:
        listing = json.dumps([{n: _sha256(b) for n, b in files.items()}, len(self.commits), branch])
        name = hashlib.sha1(listing.encode()).hexdigest()
        self.commits[name], self.branches[branch] = files, name
        self.messages.append(message)
        return name

    def files(self, branch: str = "main") -> dict[str, bytes]:
        return self.commits[self.branches[branch]]


class Hub:
    """What the stand-in holds, and how it is told to fail.

    Attributes:
        address: where it listens.
        repositories: by user/name.
        fail_commits: answer every commit with an error, or those whose message is this word.
        closed: names that the token may not create, though it may write to what has them.
    """

    def __init__(self) -> None:
        self.address = ""
        self.repositories: dict[str, Repository] = {}
        self.uploads: dict[str, bytes] = {}
        self.fail_commits: bool | str = False
        self.closed: set[str] = set()
        self.lock = threading.RLock()

    def environment(self, token: str | None = TOKEN) -> dict[str, str]:
        """Variables for a client's process."""
        known = {} if token is None else {"HF_TOKEN": token}
        return {
            "HF_ENDPOINT": self.address,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_OFFLINE": "0",
        } | known


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A stand-in that answers inside the block."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _RefusedError(Exception):
    """An answer other than success: status, the Hub's word for it, message."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *args):
        """Nothing on the screen."""

    def answer(self):
        path, _, query = self.path.partition("?")
        parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
        body = self._body()
        try:
            with self.hub.lock:
                self._route(parts, body, urllib.parse.parse_qs(query))
        except _RefusedError as refused:
            status, code, message = refused.args
            headers = {"X-Error-Code": code, "X-Error-Message": message}
            self._send({"error": message}, status, headers)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = answer

    def _route(self, parts, body, query):
        match parts:
            case ["_lfs", name]:
                assert _sha256(body) == name
                self.hub.uploads[name] = body
                self._send({})
            case ["api", "whoami-v2"]:
                self._check_token()
                self._send({"type": "user", "name": USER, "orgs": []})
            case ["api", "validate-yaml"]:
                self._send({"errors": [], "warnings": []})
            case ["api", "repos", "create"]:
                self._create(json.loads(body))
            case ["api", "repos", "delete"]:
                self._check_writer()
                del self.hub.repositories[_full_name(json.loads(body))]
                self._send({})
            case ["api", "models", user, name, *rest]:
                self._model(f"{user}/{name}", rest, body, query)
            case [user, name, "info", "lfs", "objects", "batch"] if name.endswith(".git"):
                self._check_writer()
                self._lfs_batch(json.loads(body))
            case [user, name, "resolve", revision, *path]:
                self._download(f"{user}/{name}", revision, "/".join(path))
            case _:
                raise _RefusedError(404, "NotFound", f"nothing at {self.path}")

    def _create(self, wanted):
        self._check_writer()
        name = _full_name(wanted)
        if name in self.hub.closed:
            raise _RefusedError(403, "Forbidden", f"no right to create {name}")
        url = f"{self.hub.address}/{name}"
        if name in self.hub.repositories:
            self._send({"error": "You already created this model repo", "url": url}, 409)
            return
        private = bool(wanted.get("private") or wanted.get("visibility") == "private")
        made = self.hub.repositories[name] = Repository(private)
        rule = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
        made.commit("main", {".gitattributes": rule}, "initial commit")
        self._send({"url": url, "name": name, "id": "0" * 24})

    def _model(self, name, rest, body, query):
        repository = self._find(name)
        if self.command == "POST" and rest[:1] != ["paths-info"]:
            self._check_writer()
        match rest:
            case [] | ["revision", _]:
                commit = self._revision(repository, rest[1] if rest else "main")
                self._send(_information(name, repository, commit))
            case ["preupload", branch]:
                given = json.loads(body)["files"]
                modes = [(f["path"], "lfs" if _is_large(f["path"]) else "regular") for f in given]
                self._send(
                    {
                        "files": [
                            {"path": p, "uploadMode": m, "shouldIgnore": False} for p, m in modes
                        ],
                        "commitOid": self._revision(repository, branch),
                    }
                )
            case ["commit", branch]:
                self._commit(name, repository, branch, body)
            case ["tree", revision, *_]:
                files = repository.commits[self._revision(repository, revision)]
                self._send([_entry(path, content) for path, content in sorted(files.items())])
            case ["paths-info", revision]:
                files = repository.commits[self._revision(repository, revision)]
                paths = json.loads(body)["paths"] if body[:1] == b"{" else _form(body)["paths"]
                self._send([_entry(path, files[path]) for path in paths if path in files])
            case ["auth-check", *kind]:
                self._check_token()
                if kind == ["write"]:
                    self._check_writer()
                self._send({})
            case ["branch", branch] if self.command == "DELETE":
                del repository.branches[branch]
                self._send({})
            case ["branch", branch]:
                if not re.fullmatch(r"[\w.-]+", branch):
                    raise _RefusedError(
                        400, "BadRequest", f"Invalid reference for a branch: {branch}"
                    )
                if branch in repository.branches:
                    raise _RefusedError(409, "Conflict", f"Reference already exists: {branch}")
                start = json.loads(body or b"{}").get("startingPoint") or "main"
                repository.branches[branch] = self._revision(repository, start)
                self._send({})
            case _:
                raise _RefusedError(404, "NotFound", f"nothing at {self.path}")

    def _commit(self, name, repository, branch, body):
        header = json.loads(body.splitlines()[0])["value"]["summary"]
        if self.hub.fail_commits in (True, header):
            raise _RefusedError(500, "Internal", "the disk is full")
        files = dict(repository.commits[self._revision(repository, branch)])
        message = ""
        for line in filter(None, body.splitlines()):
            value = json.loads(line)
            key, value = value["key"], value["value"]
            if key == "header":
                message = value["summary"]
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.hub.uploads[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]
            else:
                raise _RefusedError(400, "BadRequest", f"unknown operation {key}")
        commit = repository.commit(branch, files, message)
        url = f"{self.hub.address}/{name}/commit/{commit}"
        self._send({"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""})

    def _lfs_batch(self, wanted):
        objects = []
        for one in wanted["objects"]:
            entry = {"oid": one["oid"], "size": one["size"]}
            if one["oid"] not in self.hub.uploads:
                href = f"{self.hub.address}/_lfs/{one['oid']}"
                entry["actions"] = {"upload": {"href": href, "header": {}}}
            objects.append(entry)
        self._send({"transfer": "basic", "objects": objects})

    def _download(self, name, revision, path):
        repository = self._find(name)
        commit = self._revision(repository, revision)
        content = repository.commits[commit].get(path)
        if content is None:
            raise _RefusedError(404, "EntryNotFound", f"no file {path}")
        headers = {"X-Repo-Commit": commit, "ETag": f'"{_entry(path, content)["oid"]}"'}
        if _is_large(path):
            headers |= {"X-Linked-ETag": f'"{_sha256(content)}"', "X-Linked-Size": len(content)}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked is None:
            self._send(content, headers=headers)
            return
        first, last = int(asked[1]), min(int(asked[2] or len(content)), len(content) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        self._send(content[first : last + 1], 206, headers)

    def _find(self, name):
        found = self.hub.repositories.get(name)
        if found is None or (found.private and self._token() not in (TOKEN, READER)):
            status = 404 if self._token() else 401
            raise _RefusedError(status, "RepoNotFound", "Repository not found")
        return found

    def _revision(self, repository, revision):
        commit = repository.branches.get(revision, revision)
        if commit not in repository.commits:
            raise _RefusedError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def _token(self):
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    def _check_token(self):
        if self._token() not in (TOKEN, READER):
            raise _RefusedError(401, "Unauthorized", "Invalid credentials in Authorization header")

    def _check_writer(self):
        self._check_token()
        if self._token() != TOKEN:
            raise _RefusedError(403, "Forbidden", "this token may only read")

    def _body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _send(self, content, status=200, headers=None):
        is_file = isinstance(content, bytes)
        body = content if is_file else json.dumps(content).encode()
        self.send_response(status)
        kind = "application/octet-stream" if is_file else "application/json"
        everything = {"Content-Type": kind, "Content-Length": len(body), **(headers or {})}
        for key, value in everything.items():
            self.send_header(key, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _full_name(wanted):
    return f"{wanted.get('organization') or USER}/{wanted['name']}"


def _is_large(path):
    return path.endswith(".safetensors")


def _sha256(content):
    return hashlib.sha256(content).hexdigest()


def _form(body):
    return urllib.parse.parse_qs(body.decode())


def _entry(path, content):
    oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    entry = {"type": "file", "path": path, "size": len(content), "oid": oid}
    if _is_large(path):
        entry["lfs"] = {"oid": _sha256(content), "size": len(content), "pointerSize": 134}
    return entry


def _information(name, repository, commit):
    return {
        "_id": "0" * 24, "id": name, "modelId": name, "author": name.split("/")[0], "sha": commit,
        "private": repository.private, "gated": False, "disabled": False, "tags": [],
        "downloads": 0, "likes": 0, "lastModified": "2026-01-01T00:00:00.000Z",
        "createdAt": "2026-01-01T00:00:00.000Z",
        "siblings": [{"rfilename": path} for path in sorted(repository.commits[commit])],
    }  # fmt: skip
