import { PageTitle } from "../../parts/page-title.tsx";

/** How the service does. */
export default function OverviewPage() {
  return <PageTitle title="Overview" />;
}
