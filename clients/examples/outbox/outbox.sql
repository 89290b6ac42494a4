-- In the publisher's own database.
create table outbox (
  id bigint generated always as identity primary key,
  -- A PublishEventRequest without idempotency_key, as JSON.
  event jsonb not null,
  -- When to publish the event again, if the service could not store it yet.
  retry_at timestamptz,
  -- Why the event cannot be published as it is, for a person to look at.
  error text
);
create index on outbox (id) where error is null;

create table orders (id bigint primary key, number text not null, dispatched timestamptz);
insert into orders select n, 'SO-' || n from generate_series(1, 1200) n;

-- The change and its events are stored in one transaction: either both exist, or neither.
begin;
with dispatched as (update orders set dispatched = now() returning *)
insert into outbox (event)
select jsonb_build_object('userId', 'tenant-42', 'orderDispatched', jsonb_build_object(
  'orderId', id::text, 'orderNumber', number, 'dispatchedAt', to_json(dispatched)))
from dispatched;
commit;
