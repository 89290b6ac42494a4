import { PageTitle } from "../../parts/page-title.tsx";

/** One delivery with its attempts. */
export default function DeliveryPage() {
  return <PageTitle title="Delivery" />;
}
