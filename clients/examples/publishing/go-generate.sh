# Needs Go 1.24 or later, and protoc. Run it in the folder of the program: it makes its module and the package webhookv1.
module=example.com/publisher
go mod init "$module"
go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2

bin=$(go env GOBIN)
PATH="$PATH:${bin:-$(go env GOPATH)/bin}"
for file in webhook/v1/event.proto webhook/v1/options.proto; do
  set -- "$@" "--go_opt=M$file=$module/webhookv1" "--go-grpc_opt=M$file=$module/webhookv1"
done
${PROTOC:-protoc} -I"${PROTO_DIR:-proto}" --go_out=. --go-grpc_out=. "--go_opt=module=$module" \
  "--go-grpc_opt=module=$module" "$@" webhook/v1/event.proto webhook/v1/options.proto

go get google.golang.org/grpc@v1.85.0
go mod tidy
