import { PageTitle } from "../../parts/page-title.tsx";

/** The keys that calls are made with. */
export default function KeysPage() {
  return <PageTitle title="API keys" />;
}
