package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	webhookv1 "example.com/publisher/webhookv1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const maxAttempts = 5

var transient = []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled}

// detail finds a detail of an error, such as *errdetails.ErrorInfo.
func detail[T any](err error) (found T, ok bool) {
	for _, each := range status.Convert(err).Details() {
		if found, ok = each.(T); ok {
			return found, true
		}
	}
	return found, false
}

// withRetries repeats a call that may succeed later. The idempotency keys stay the same, so nothing is published twice.
func withRetries[T any](call func(context.Context) (T, error)) T {
	for attempt := 1; ; attempt++ {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		ctx = metadata.AppendToOutgoingContext(ctx, "x-service-key", os.Getenv("WEBHOOK_KEY"))
		answer, err := call(ctx)
		cancel()
		if err == nil {
			return answer
		}
		retry, mayRetry := detail[*errdetails.RetryInfo](err)
		if attempt == maxAttempts || !(mayRetry || slices.Contains(transient, status.Code(err))) {
			log.Fatal(err)
		}
		delay := 100 * time.Millisecond << attempt
		if mayRetry {
			delay = retry.GetRetryDelay().AsDuration()
		}
		time.Sleep(delay)
	}
}

func order(n int64, userID string) *webhookv1.PublishEventRequest {
	return &webhookv1.PublishEventRequest{
		IdempotencyKey: fmt.Sprintf("go-%d", n),
		UserId:         userID,
		Data: &webhookv1.PublishEventRequest_OrderDispatched{OrderDispatched: &webhookv1.OrderDispatched{
			OrderId:      n,
			OrderNumber:  fmt.Sprintf("SO-%d", n),
			DispatchedAt: &timestamppb.Timestamp{Seconds: 1795253400},
		}},
	}
}

// streamThousand sends a hundred events in each message. A stream takes up to 10,000 events.
func streamThousand(ctx context.Context, events webhookv1.EventServiceClient) (*webhookv1.PublishEventsResponse, error) {
	stream, err := events.PublishEvents(ctx)
	if err != nil {
		return nil, err
	}
	for first := int64(1001); first < 2001; first += 100 {
		message := &webhookv1.PublishEventsRequest{}
		for n := range int64(100) {
			message.Events = append(message.Events, order(first+n, "tenant-42"))
		}
		if err := stream.Send(message); err != nil {
			break // CloseAndRecv returns the reason.
		}
	}
	return stream.CloseAndRecv()
}

func main() {
	address := os.Getenv("WEBHOOK_GRPC")
	if address == "" {
		address = "localhost:9090"
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	events := webhookv1.NewEventServiceClient(connection)

	// One event.
	published := withRetries(func(ctx context.Context) (*webhookv1.PublishEventResponse, error) {
		return events.PublishEvent(ctx, order(1, "tenant-42"))
	})
	fmt.Printf("published %s, duplicate: %t\n", published.EventId, published.Duplicate)

	// A batch: each event has a result of its own. Codes 3 and 6 are permanent. With any other code, such as 8 for an event
	// over the key's quota, publish the event again after RetryAfter, with the same idempotency key.
	batch := []*webhookv1.PublishEventRequest{order(2, "tenant-42"), order(3, "two words")}
	answer := withRetries(func(ctx context.Context) (*webhookv1.PublishEventBatchResponse, error) {
		return events.PublishEventBatch(ctx, &webhookv1.PublishEventBatchRequest{Events: batch})
	})
	for _, result := range answer.Results {
		if refused := result.GetError(); refused != nil {
			fmt.Printf("event %d refused: %s: %s\n", refused.Index, refused.Reason, refused.Message)
		} else {
			fmt.Printf("published %s\n", result.GetPublished().EventId)
		}
	}

	// A stream.
	streamed := withRetries(func(ctx context.Context) (*webhookv1.PublishEventsResponse, error) {
		return streamThousand(ctx, events)
	})
	stored := 0
	for _, result := range streamed.Results {
		if result.GetPublished() != nil {
			stored++
		}
	}
	fmt.Printf("streamed %d events\n", stored)

	// What an error says to programs.
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-service-key", os.Getenv("WEBHOOK_KEY"))
	for _, wrong := range []*webhookv1.PublishEventRequest{order(4, ""), order(1, "tenant-43")} {
		_, err := events.PublishEvent(ctx, wrong)
		info, _ := detail[*errdetails.ErrorInfo](err)
		fields := info.GetMetadata()["fields"]
		if invalid, ok := detail[*errdetails.BadRequest](err); ok {
			fields = invalid.FieldViolations[0].Field
		}
		fmt.Printf("%s: %s\n", info.GetReason(), fields)
	}
}
