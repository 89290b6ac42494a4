address=${WEBHOOK_GRPC:-localhost:9090}

grpcurl -plaintext -max-time 5 -H "X-Service-Key: $WEBHOOK_KEY" -d '{
    "idempotencyKey": "grpcurl-1001",
    "userId": "tenant-42",
    "orderDispatched": {
      "orderId": "1001",
      "orderNumber": "SO-1001",
      "dispatchedAt": "2026-11-21T09:30:00Z"
    }
  }' "$address" webhook.v1.EventService/PublishEvent

grpcurl -plaintext -max-time 5 -H "X-Service-Key: $WEBHOOK_KEY" \
  "$address" webhook.v1.WebhookService/ListWebhooks
