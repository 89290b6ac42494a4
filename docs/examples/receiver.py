# A receiver in Python. It needs the package `standardwebhooks`, and in front of it whatever ends TLS for you.
# WEBHOOK_SECRET is what GetWebhookSecret tells of the webhook: whsec_…
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["WEBHOOK_SECRET"])
# In memory for the example; keep the ids where you keep what you make of the events.
handled = set()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        # The body as it came: parsed and written anew it would be other bytes, with another signature.
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            event = webhook.verify(body, dict(self.headers))
        except (WebhookVerificationError, ValueError):  # ValueError: a signature that is not even one
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
