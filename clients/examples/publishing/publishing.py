import os
import time

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from webhook.v1 import event_pb2, event_pb2_grpc

address = os.environ.get("WEBHOOK_GRPC", "localhost:9090")
metadata = [("x-service-key", os.environ["WEBHOOK_KEY"])]
call_options = {"metadata": metadata, "timeout": 10}

MAX_ATTEMPTS = 5
TRANSIENT = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


def detail(error, kind):
    """A detail of an error, such as google.rpc.ErrorInfo; None if it has none."""
    status = rpc_status.from_call(error)
    for packed in status.details if status else []:
        unpacked = kind()
        if packed.Unpack(unpacked):
            return unpacked
    return None


def with_retries(call):
    """Repeats a call that may succeed later. The idempotency keys stay the same, so nothing is published twice."""
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            return call()
        except grpc.RpcError as error:
            retry = detail(error, error_details_pb2.RetryInfo)
            if attempt == MAX_ATTEMPTS or not (retry or error.code() in TRANSIENT):
                raise
            time.sleep(retry.retry_delay.ToTimedelta().total_seconds() if retry else 0.1 * 2**attempt)


def order(n, user_id="tenant-42"):
    return event_pb2.PublishEventRequest(
        idempotency_key=f"python-{n}",
        user_id=user_id,
        order_dispatched=event_pb2.OrderDispatched(
            order_id=n,
            order_number=f"SO-{n}",
            dispatched_at=Timestamp(seconds=1795253400),
        ),
    )


def thousand_orders():
    for first in range(1001, 2001, 100):
        yield event_pb2.PublishEventsRequest(events=[order(first + n) for n in range(100)])


with grpc.insecure_channel(address) as channel:
    events = event_pb2_grpc.EventServiceStub(channel)

    # One event.
    published = with_retries(lambda: events.PublishEvent(order(1), **call_options))
    print(f"published {published.event_id}, duplicate: {str(published.duplicate).lower()}")

    # A batch: each event has a result of its own. Codes 3 and 6 are permanent. With any other code, such as 8 for an
    # event over the key's quota, publish the event again after retry_after, with the same idempotency key.
    batch = event_pb2.PublishEventBatchRequest(events=[order(2), order(3, user_id="two words")])
    for result in with_retries(lambda: events.PublishEventBatch(batch, **call_options)).results:
        if result.HasField("published"):
            print(f"published {result.published.event_id}")
        else:
            print(f"event {result.error.index} refused: {result.error.reason}: {result.error.message}")

    # A stream of up to 10,000 events, a hundred in each message.
    streamed = with_retries(lambda: events.PublishEvents(thousand_orders(), **call_options))
    print(f"streamed {sum(result.HasField('published') for result in streamed.results)} events")

    # What an error says to programs.
    for wrong in [order(4, user_id=""), order(1, user_id="tenant-43")]:
        try:
            events.PublishEvent(wrong, **call_options)
        except grpc.RpcError as error:
            info = detail(error, error_details_pb2.ErrorInfo)
            invalid = detail(error, error_details_pb2.BadRequest)
            fields = [each.field for each in invalid.field_violations] if invalid else [info.metadata["fields"]]
            print(f"{info.reason}: {','.join(fields)}")
