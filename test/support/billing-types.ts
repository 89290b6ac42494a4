import { registeredTypes } from "./registered-types.ts";

/** The path of the proto file of `billingTypes`. */
export const BILLING_FILE = "billing/v1/events.proto";

/** Two registered event types: InvoicePaid, 1004, with the alias `invoice.paid`; and SubscriptionEnded, 1005, which is deprecated. */
export function billingTypes() {
  const [invoice, subscription] = registeredTypes({
    [BILLING_FILE]: `
      syntax = "proto3";
      package billing.v1;
      import "google/protobuf/timestamp.proto";
      import "webhook/v1/options.proto";

      // A customer has paid an invoice.
      message InvoicePaid {
        option (webhook.v1.event_type) = {process: 1004, name: "InvoicePaid", alias: "invoice.paid"};
        // Its number.
        string invoice_number = 1 [
          (webhook.v1.required) = true,
          (webhook.v1.searchable) = true,
          (webhook.v1.example) = "INV-1001"
        ];
        // The amount.
        Money total = 2;
        // What was sold.
        repeated InvoiceLine lines = 3;
        // When it was paid.
        google.protobuf.Timestamp paid_at = 4;
      }

      // An amount of money.
      message Money {
        // In the smallest unit of the currency.
        int64 units = 1 [(webhook.v1.example) = "9223372036854775807"];
        string currency = 2 [(webhook.v1.example) = "EUR"];
      }

      message InvoiceLine {
        string sku = 1;
      }

      // A subscription has ended.
      message SubscriptionEnded {
        option (webhook.v1.event_type) = {process: 1005};
        string subscription_id = 1;
      }`,
  });
  if (!invoice || !subscription) throw new Error("the file has two event types");
  return [invoice, { ...subscription, deprecated: true }];
}
