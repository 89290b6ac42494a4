url=${WEBHOOK_URL:-http://localhost:8080}

curl -sS "$url/webhook.v1.EventService/PublishEvent" --max-time 5 \
  -H "X-Service-Key: $WEBHOOK_KEY" -H 'Content-Type: application/json' -d '{
    "idempotencyKey": "curl-1001",
    "userId": "tenant-42",
    "orderDispatched": {
      "orderId": "1001",
      "orderNumber": "SO-1001",
      "dispatchedAt": "2026-11-21T09:30:00Z"
    }
  }'

curl -sS "$url/webhook.v1.WebhookService/ListWebhooks" --max-time 5 \
  -H "X-Service-Key: $WEBHOOK_KEY" -H 'Content-Type: application/json' -d '{}'
