# A receiver in Python. It needs the package `standardwebhooks`.
# WEBHOOK_SECRET is the webhook's secret from GetWebhookSecret: whsec_…
# TLS_CERT and TLS_KEY name the certificate chain and its key; `npm run receiver -- --certificate` makes some for a try on one
# machine. Without them it speaks HTTP, for use behind a proxy that terminates TLS.
import os
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["WEBHOOK_SECRET"])
# More than any delivery has, in bytes.
MAX_BODY_BYTES = 1_048_576
# In memory for this example. Store the ids where you store the results of the events.
handled = set()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers["Content-Length"])
        if not 0 <= length <= MAX_BODY_BYTES:
            return self.answer(400)
        # The raw body. Parsed and serialized again, it can have other bytes, which the signature does not match.
        body = self.rfile.read(length)
        try:
            event = webhook.verify(body, dict(self.headers))
        except (WebhookVerificationError, ValueError):  # ValueError: malformed signature
            return self.answer(400)
        delivery = self.headers["X-Service-Webhook-Id"]
        if delivery not in handled:
            print(self.headers["X-Service-Webhook-Process"], event, flush=True)
            handled.add(delivery)
        self.answer(204)

    def answer(self, status):
        self.send_response(status)
        self.end_headers()

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), Receiver)
if "TLS_CERT" in os.environ:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(os.environ["TLS_CERT"], os.environ["TLS_KEY"])
    # The thread of the connection does the handshake.
    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print("listening on", server.server_port, flush=True)
server.serve_forever()
