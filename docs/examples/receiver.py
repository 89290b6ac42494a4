# A receiver in Python. It needs the package `standardwebhooks`, and a proxy that terminates TLS.
# WEBHOOK_SECRET is the webhook's secret from GetWebhookSecret: whsec_…
import os
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
print("listening on", server.server_port, flush=True)
server.serve_forever()
