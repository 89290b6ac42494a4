import { PageTitle } from "../../parts/page-title.tsx";

/** One registration. */
export default function WebhookPage() {
  return <PageTitle title="Webhook" />;
}
