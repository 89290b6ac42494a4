import os

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from webhook.v1 import event_pb2, event_pb2_grpc, webhook_pb2, webhook_pb2_grpc

address = os.environ.get("WEBHOOK_GRPC", "localhost:9090")
metadata = [("x-service-key", os.environ["WEBHOOK_KEY"])]

with grpc.insecure_channel(address) as channel:
    events = event_pb2_grpc.EventServiceStub(channel)
    published = events.PublishEvent(
        event_pb2.PublishEventRequest(
            idempotency_key="grpcio-1001",
            user_id="tenant-42",
            order_dispatched=event_pb2.OrderDispatched(
                order_id=1001,
                order_number="SO-1001",
                dispatched_at=Timestamp(seconds=1795253400),
            ),
        ),
        metadata=metadata,
        timeout=5,
    )
    print(f"published {published.event_id}")

    webhooks = webhook_pb2_grpc.WebhookServiceStub(channel)
    request = webhook_pb2.ListWebhooksRequest()
    for webhook in webhooks.ListWebhooks(request, metadata=metadata, timeout=5).webhooks:
        print(f"webhook {webhook.id} {webhook.url}")
