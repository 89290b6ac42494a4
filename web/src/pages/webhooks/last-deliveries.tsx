import { useState } from "react";
import { DeliveryService, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import type { Webhook } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useLive } from "../../api/queries.ts";
import { DialogButton } from "../../parts/dialogs.tsx";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { Dimmed, deliveriesOf, PageLink } from "../../parts/inline.tsx";
import { Section } from "../../parts/page.tsx";
import { ANY_TIME, SinceField } from "../../parts/pick-time.tsx";
import { DeliveryList } from "../deliveries/delivery-list.tsx";
import { SendFilteredDialog } from "../deliveries/send-filtered.tsx";
import { SendMissed } from "../replays/start-replay.tsx";

/** The number of items shown. */
const SHOWN = 10;
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 5_000;

/** The newest deliveries of a webhook, kept current. */
export function LastDeliveries({ webhook }: { webhook: Webhook }) {
  const webhookId = webhook.id;
  const list = useLive(DeliveryService.method.listDeliveries, { webhookId, pageSize: SHOWN }, REFRESH_MS);
  return (
    <Section
      title="Last deliveries"
      actions={
        <>
          <PageLink to={deliveriesOf(webhookId)}>All of its deliveries</PageLink>
          <SendMissed webhook={webhook} />
        </>
      }
    >
      <Refreshed query={list} loading={<Loading lines={5} />}>
        {({ deliveries }) =>
          deliveries.length === 0 ? (
            <Dimmed>None yet. The next event of this type appears here, and so does a test event.</Dimmed>
          ) : (
            <DeliveryList deliveries={deliveries} ofOne="webhook" />
          )
        }
      </Refreshed>
    </Section>
  );
}

const FAILED = [DeliveryState.FAILED];

/** Sends the failed deliveries of a webhook again, all or those since a time, once that is confirmed. */
export function ReplayFailed({ webhookId }: { webhookId: bigint }) {
  const [since, setSince] = useState(ANY_TIME);
  const filter = { webhookId, states: FAILED, ...(since.from ? { from: since.from } : {}) };
  return (
    <DialogButton
      onOpen={() => setSince(ANY_TIME)}
      dialog={(dialog) => (
        <SendFilteredDialog {...dialog} filter={filter}>
          <SinceField label="Created" value={since} onChange={setSince} orAny />
        </SendFilteredDialog>
      )}
    >
      Replay failed…
    </DialogButton>
  );
}
