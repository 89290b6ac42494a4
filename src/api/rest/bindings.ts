import type { DescField, DescMessage, DescMethod, DescMethodUnary, DescService } from "@bufbuild/protobuf";
import { getOption, hasOption, ScalarType } from "@bufbuild/protobuf";
import { http } from "../../../gen/google/api/annotations_pb.ts";
import type { HttpRule } from "../../../gen/google/api/http_pb.ts";
import { rest_data } from "../../../gen/webhook/v1/options_pb.ts";
import { isParameter } from "./parameter-values.ts";
import { restFields } from "./parameters.ts";

/** A REST address of a method. */
export interface RestBinding {
  httpMethod: "GET" | "PUT" | "POST" | "DELETE" | "PATCH";
  path: string;
  method: DescMethodUnary;
  /** The field of the response that becomes Data. */
  data: DescField;
  /** The field `warnings` of the response, which becomes Warnings; undefined if there is none. */
  warnings: DescField | undefined;
  /** The fields of a list that comes in pages, of which REST returns all; undefined for other methods. */
  paging: { size: DescField; token: DescField; next: DescField } | undefined;
}

/**
 * All REST addresses in the services' `google.api.http` options, including additional bindings.
 *
 * @throws Error at startup for options that the gateway does not support
 */
export function restBindings(services: readonly DescService[]): RestBinding[] {
  return services.flatMap((service) =>
    service.methods.flatMap((method) => {
      if (!hasOption(method, http)) return [];
      const name = `${service.typeName}.${method.name}`;
      if (!isUnary(method)) throw new Error(`${name}: REST can serve unary methods only`);
      const dataName = getOption(method, rest_data);
      const data = method.output.fields.find((field) => field.name === dataName);
      if (!data) throw new Error(`${name}: the option rest_data must name a field of ${method.output.name}`);
      const warnings = method.output.fields.find((field) => field.name === "warnings");
      if (warnings && (warnings.fieldKind !== "list" || warnings.scalar !== ScalarType.STRING)) {
        throw new Error(`${name}: the field warnings of ${method.output.name} must be a list of strings`);
      }
      const size = fieldOf(method.input, "page_size");
      const token = fieldOf(method.input, "page_token");
      const next = fieldOf(method.output, "next_page_token");
      const paging = size && token && next ? { size, token, next } : undefined;
      const unread = restFields(method.input).find((field) => !isParameter(field));
      if (unread) throw new Error(`${name}: ${unread.name} cannot be a parameter; set rest_omitted`);
      const rule = getOption(method, http);
      return [rule, ...rule.additionalBindings].map((each) => ({
        ...address(each, name),
        method,
        data,
        warnings,
        paging,
      }));
    }),
  );
}

function fieldOf({ fields }: DescMessage, name: string): DescField | undefined {
  return fields.find((field) => field.name === name);
}

function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === "unary";
}

const METHODS = { get: "GET", put: "PUT", post: "POST", delete: "DELETE", patch: "PATCH" } as const;

function address({ pattern }: HttpRule, name: string): Pick<RestBinding, "httpMethod" | "path"> {
  if (pattern.case === undefined || pattern.case === "custom") {
    throw new Error(`${name}: google.api.http must name get, put, post, delete or patch`);
  }
  if (/[{}*:]/.test(pattern.value)) {
    throw new Error(`${name}: variables in paths, as in ${pattern.value}, are not served`);
  }
  return { httpMethod: METHODS[pattern.case], path: pattern.value };
}
