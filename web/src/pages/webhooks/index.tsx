import { PageTitle } from "../../parts/page-title.tsx";

/** The registrations. */
export default function WebhooksPage() {
  return <PageTitle title="Webhooks" />;
}
