"""An HTTP front on loopback for a storage server: counts the requests, and delays each as a network would.

For Google's store it also translates uploads. `dr` uploads as the XML API of the real service does, with the header
`x-goog-if-generation-match`; fake-gcs-server takes uploads through the JSON API only, and ignores that condition. The
front checks the condition under a lock and passes the upload on.
"""

import http.client
import http.server
import re
import threading
import time
import urllib.parse

HOP = {"connection", "host", "transfer-encoding", "keep-alive", "content-length"}


class Front:
    """Serves on a free port until it is closed."""

    def __init__(self, port, delay, is_google=False):
        self.backend, self.delay, self.is_google = port, delay, is_google
        self.requests, self.sent_bytes = 0, 0
        self.lock, self.uploads = threading.Lock(), {}
        front = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Each answer is written in two parts, which would wait for each other.
            disable_nagle_algorithm = True

            def handle_request(self):
                front.answer(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        # A client that is killed resets its connections.
        self.server.handle_error = lambda *args: None
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def reset(self):
        self.requests, self.sent_bytes = 0, 0

    def answer(self, request):
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        time.sleep(self.delay)
        translated = self.is_google and request.command in ["PUT", "POST", "DELETE"]
        status, headers, answer = (self.translate if translated else self.forward)(request, body)
        with self.lock:
            self.requests += 1
            self.sent_bytes += len(answer)
        request.send_response_only(status)
        for name, value in headers:
            if name.lower() not in HOP:
                request.send_header(name, value)
        # That of a HEAD request is the length of the object.
        length = dict((name.lower(), value) for name, value in headers).get("content-length")
        request.send_header("content-length", length if request.command == "HEAD" and length else str(len(answer)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(answer)

    def forward(self, request, body):
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
        return self.send(request.command, request.path, body, headers)

    def send(self, method, path, body=b"", headers={}):
        connection = http.client.HTTPConnection("127.0.0.1", self.backend, timeout=60)
        try:
            connection.request(method, path, body, {"Content-Length": str(len(body)), **headers})
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def translate(self, request, body):
        """Carries out a request of the XML API through the JSON API."""
        url = urllib.parse.urlsplit(request.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        bucket, name = url.path.lstrip("/").split("/", 1)
        name = urllib.parse.unquote(name)
        upload = query.get("uploadId")
        if request.command == "DELETE":
            if upload:
                self.uploads.pop(upload, None)
                return 204, [], b""
            status, _, _ = self.send("DELETE", f"/storage/v1/b/{bucket}/o/{quoted(name)}")
            return (404 if status == 404 else 204), [], b""
        if "uploads" in query:
            upload = str(len(self.uploads))
            self.uploads[upload] = {}
            return 200, [], xml("InitiateMultipartUploadResult", UploadId=upload)
        if "partNumber" in query:
            self.uploads[upload][query["partNumber"]] = body
            return 200, [("ETag", f'"{query["partNumber"]}"')], b""
        source = request.headers.get("x-goog-copy-source")
        if source:
            _, _, body = self.send("GET", "/" + source.lstrip("/"))
        elif upload:
            parts = self.uploads.pop(upload)
            body = b"".join(parts[number] for number in re.findall(r"<PartNumber>(\d+)</PartNumber>", body.decode()))
        with self.lock:
            wanted = request.headers.get("x-goog-if-generation-match")
            if wanted is not None:
                status, headers, _ = self.send("HEAD", f"/{bucket}/{quoted(name)}")
                found = dict((key.lower(), value) for key, value in headers).get("x-goog-generation", "0")
                if wanted != (found if status == 200 else "0"):
                    return 412, [], b"<Error><Code>PreconditionFailed</Code></Error>"
            path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quoted(name)}"
            status, _, answer = self.send("POST", path, body, {"Content-Type": "application/octet-stream"})
            generation = re.search(rb'"generation":"(\d+)"', answer).group(1).decode()
        tags = [("ETag", f'"{generation}"'), ("x-goog-generation", generation)]
        return status, tags, xml("CompleteMultipartUploadResult", ETag=generation) if upload else b""


def quoted(name):
    return urllib.parse.quote(name, safe="")


def xml(tag, **values):
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in values.items())
    return f"<?xml version='1.0' encoding='UTF-8'?><{tag}>{inner}</{tag}>".encode()
