import { PageTitle } from "../../parts/page-title.tsx";

/** The apps that keys belong to. */
export default function AppsPage() {
  return <PageTitle title="Installed apps" />;
}
