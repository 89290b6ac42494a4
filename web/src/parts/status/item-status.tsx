import { Button } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import type { ErrorReason } from "../../../../src/contract/errors.ts";
import { failureReason } from "../../api/failure.ts";
import { Empty } from "../lists/empty.tsx";
import { Failure } from "./failure.tsx";
import { Loading } from "./loading.tsx";

/** An item that is not shown, and why. */
export interface ItemStatusProps {
  query: { isPending: boolean; error: unknown; refetch: () => unknown };
  /** The reason of the error if the item does not exist: "DELIVERY_NOT_FOUND". */
  notFound: ErrorReason;
  /** The noun of the item: "delivery". */
  noun: string;
  icon: ReactNode;
  /** The list to go to instead. */
  list: { path: string; label: string };
  /** The reason why the item may not exist, in a sentence. */
  children: ReactNode;
}

/** Stands where an item is not shown: it is loading, does not exist, or could not be loaded. */
export function ItemStatus({ query, notFound, noun, icon, list, children }: ItemStatusProps) {
  if (query.isPending) return <Loading lines={12} height={32} />;
  const reason = failureReason(query.error);
  // An invalid id is that of no item.
  if (reason !== notFound && reason !== "FIELDS_INVALID") {
    return <Failure error={query.error} onRetry={() => void query.refetch()} />;
  }
  return (
    <Empty
      icon={icon}
      title={`There is no such ${noun}`}
      action={
        <Button component={Link} to={list.path} variant="default">
          {list.label}
        </Button>
      }
    >
      {children}
    </Empty>
  );
}
